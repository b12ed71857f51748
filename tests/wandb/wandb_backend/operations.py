"""The GraphQL operations that the SDK sends, each a small function of (state, variables, query)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from wandb_backend.state import ENTITY, USER, Agent, Run, State, Sweep

__all__ = ["OPERATIONS", "UnknownOperation", "answer"]

Variables = dict[str, Any]
Operation = Callable[[State, Variables, str], dict[str, Any]]
OPERATIONS: dict[str, Operation] = {}


class UnknownOperation(Exception):
    """The SDK sent something that the backend has no answer for."""


def answer(state: State, operation: str, variables: Variables, query: str) -> dict[str, Any]:
    """Return the ``data`` of the answer; raises :class:`UnknownOperation`."""
    handler = OPERATIONS.get(operation)
    if handler is None:
        raise UnknownOperation(operation)
    return handler(state, variables, query)


def _operation(*names: str) -> Callable[[Operation], Operation]:
    def register(function: Operation) -> Operation:
        for name in names:
            OPERATIONS[name] = function
        return function

    return register


def _iso(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))


def _fragment(run: Run) -> dict[str, Any]:
    """Everything a query may ask of a run."""
    return {
        "id": run.id,
        "internalId": run.id,
        "name": run.name,
        "displayName": run.display_name,
        "sweepName": run.sweep,
        "state": run.state,
        "config": run.config,
        "tags": list(run.tags),
        "notes": run.notes,
        "description": None,
        "group": run.group,
        "jobType": run.job_type,
        "commit": None,
        "readOnly": False,
        "createdAt": _iso(run.created),
        "heartbeatAt": _iso(run.heartbeat),
        "systemMetrics": run.events[-1] if run.events else "{}",
        "summaryMetrics": run.summary_json,
        "historyLineCount": len(run.history),
        "historyKeys": {"lastStep": run.claimed_last_step, "keys": {}},
        "user": {"name": USER, "username": USER},
        "projectId": "1",
        "project": {"id": "1", "name": run.project, "entity": {"id": "1", "name": run.entity}},
        "exitcode": run.exit_code,
        "shouldStop": run.stop_requested,
        "stopped": run.stop_requested,
        "failed": run.state == "failed",
        "running": run.state == "running",
        "sampledHistory": [[]],
    }


def _target(state: State, variables: Variables) -> Run | None:
    """Return the run that a query names; the SDK spells the variables in several ways."""
    name = next((variables[key] for key in ("run", "runName", "runId", "name") if variables.get(key)), None)
    entity = variables.get("entity") or variables.get("entityName")
    project = variables.get("project") or variables.get("projectName")
    return state.find(entity, project, name)


def _of_run(run: Run | None, fields: dict[str, Any]) -> dict[str, Any]:
    return {"project": {"run": fields if run is not None else None}}


@_operation("Viewer", "GetViewer", "GetDefaultEntity")
def _viewer(state: State, variables: Variables, query: str) -> dict[str, Any]:
    return {
        "viewer": {
            "__typename": "User",
            "id": "1",
            "entity": ENTITY,
            "username": USER,
            "name": USER,
            "email": "tester@example.invalid",
            "admin": False,
            "flags": "{}",
            "deletedAt": None,
            "teams": {"edges": []},
            "apiKeys": {"edges": []},
        }
    }


@_operation("ServerFeaturesQuery", "ServerInfo")
def _server(state: State, variables: Variables, query: str) -> dict[str, Any]:
    return {"serverInfo": {"cliVersionInfo": {}, "latestLocalVersionInfo": None, "features": []}}


@_operation("OrgFeatureFlags")
def _flags(state: State, variables: Variables, query: str) -> dict[str, Any]:
    return {"organization": {"featureFlags": []}}


# --- runs: writing


@_operation("UpsertBucket")
def _upsert_run(state: State, variables: Variables, query: str) -> dict[str, Any]:
    run = state.by_id(variables.get("id"))
    inserted = run is None
    if run is None:
        name = str(variables.get("name") or variables.get("id"))
        inserted = state.find(variables.get("entity"), variables.get("project"), name) is None
        run = state.run(variables.get("entity"), variables.get("project"), name)
        run.state = "running"
    for attribute, keys in {
        "config": ("config",),
        "tags": ("tags",),
        "notes": ("notes",),
        "group": ("groupName",),
        "job_type": ("jobType",),
        "sweep": ("sweep",),
        "host": ("host",),
        "program": ("program",),
        "summary_json": ("summaryMetrics",),
        "display_name": ("displayName", "display_name"),
        "state": ("state",),
    }.items():
        for key in keys:
            if variables.get(key) is not None:
                setattr(run, attribute, variables[key])
    run.heartbeat = time.time()
    return {"upsertBucket": {"bucket": _fragment(run), "inserted": inserted}}


@_operation("UpdateRunState")
def _update_state(state: State, variables: Variables, query: str) -> dict[str, Any]:
    run = state.by_id(variables["input"]["id"])
    if run is not None:
        run.state = variables["input"]["state"]
    return {"updateRunState": {"success": run is not None}}


@_operation("StopRun")
def _stop_run(state: State, variables: Variables, query: str) -> dict[str, Any]:
    run = state.by_id(variables["id"])
    if run is not None:
        run.stop_requested = True
    return {"stopRun": {"success": run is not None, "clientMutationId": None}}


@_operation("DeleteRun")
def _delete_run(state: State, variables: Variables, query: str) -> dict[str, Any]:
    run = state.by_id(variables["id"])
    if run is not None:
        del state.runs[run.path]
    return {"deleteRun": {"clientMutationId": None}}


@_operation("CreateRunFiles")
def _create_files(state: State, variables: Variables, query: str) -> dict[str, Any]:
    run = _target(state, variables)
    where = run.path if run is not None else "unknown"
    files = [{"name": name, "uploadUrl": f"{{base}}/upload/{where}/{name}"} for name in variables["files"]]
    return {"createRunFiles": {"runID": run.id if run else "", "uploadHeaders": [], "files": files}}


@_operation("MarkRunFilesUploaded")
def _mark_uploaded(state: State, variables: Variables, query: str) -> dict[str, Any]:
    return {"markRunFilesUploaded": {"success": True}}


@_operation("NotifyScriptableRunAlert")
def _alert(state: State, variables: Variables, query: str) -> dict[str, Any]:
    return {"notifyScriptableRunAlert": {"success": True}}


# --- runs: reading


@_operation("RunResumeStatus")
def _resume(state: State, variables: Variables, query: str) -> dict[str, Any]:
    return {"model": {"name": variables.get("project"), "entity": {"name": ENTITY}, "bucket": None}}


@_operation("Run", "QueryRunInfo")
def _run(state: State, variables: Variables, query: str) -> dict[str, Any]:
    run = _target(state, variables)
    return _of_run(run, _fragment(run) if run else {})


@_operation("Runs")
def _runs(state: State, variables: Variables, query: str) -> dict[str, Any]:
    entity, project = variables.get("entity"), variables.get("project")
    found = [run for run in state.runs.values() if (run.entity, run.project) == (entity or ENTITY, project)]
    start = int(variables.get("cursor") or 0)
    page = found[start : start + int(variables.get("perPage") or 50)]
    end = start + len(page)
    edges = [{"node": _fragment(run), "cursor": str(start + i + 1)} for i, run in enumerate(page)]
    return {
        "project": {
            "internalId": "1",
            "runCount": len(found),
            "readOnly": False,
            "runs": {"edges": edges, "pageInfo": {"endCursor": str(end), "hasNextPage": end < len(found)}},
        }
    }


@_operation("RunState")
def _run_state(state: State, variables: Variables, query: str) -> dict[str, Any]:
    run = _target(state, variables)
    return _of_run(run, {"state": run.state if run else None})


@_operation("RunHistoryKeys")
def _history_keys(state: State, variables: Variables, query: str) -> dict[str, Any]:
    run = _target(state, variables)
    return _of_run(run, {"historyKeys": _fragment(run)["historyKeys"] if run else None})


def _sampled(rows: list[str], count: int) -> list[str]:
    """Return every n-th row, as the real server's sampling does (it can hide a single bad row)."""
    stride = max(1, -(-len(rows) // count))
    return rows[::stride]


@_operation("RunFullHistory")
def _full_history(state: State, variables: Variables, query: str) -> dict[str, Any]:
    run = _target(state, variables)
    node = "events" if "events(" in query else "history"
    rows: list[str] = getattr(run, node) if run else []
    return _of_run(run, {node: _sampled(rows, int(variables.get("samples") or 500))})


@_operation("RunSampledHistory", "SampledHistoryPage")
def _sampled_history(state: State, variables: Variables, query: str) -> dict[str, Any]:
    run = _target(state, variables)
    spec = json.loads(variables["specs"][0] if "specs" in variables else variables["spec"])
    keys = spec.get("keys") or []
    rows = [row for row in (run.rows if run else []) if all(key in row for key in keys)]
    # Bare NaN is no JSON that this answer could hold: the server sends the strings "NaN" and "Infinity".
    picked = [{key: _as_sent(row[key]) for key in keys} for row in rows]
    stride = max(1, -(-len(picked) // int(spec.get("samples") or 500)))
    return _of_run(run, {"sampledHistory": [picked[::stride]]})


def _as_sent(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")
    return value


@_operation("HistoryPage")
def _history_page(state: State, variables: Variables, query: str) -> dict[str, Any]:
    run = _target(state, variables)
    low, high = int(variables["minStep"]), int(variables["maxStep"])
    lines = [line for line in (run.history if run else []) if low <= json.loads(line).get("_step", 0) < high]
    return _of_run(run, {"history": lines[: int(variables.get("pageSize") or 1000)]})


@_operation("RunParquetHistory")
def _parquet(state: State, variables: Variables, query: str) -> dict[str, Any]:
    return _of_run(_target(state, variables), {"parquetHistory": {"parquetUrls": [], "liveData": []}})


# --- sweeps and their agents


@_operation("UpsertSweep", "UpsertSweepState")
def _upsert_sweep(state: State, variables: Variables, query: str) -> dict[str, Any]:
    known = next((sweep for sweep in state.sweeps.values() if sweep.id == variables.get("id")), None)
    if known is None:
        known = state.add_sweep(
            variables.get("config") or "{}",
            project=variables.get("projectName") or "uncategorized",
            entity=variables.get("entityName") or ENTITY,
        )
    if variables.get("state"):
        known.state = variables["state"]
    project = {"name": known.project, "entity": {"name": known.entity}}
    answered = {"name": known.name, "state": known.state, "project": project}
    return {"upsertSweep": {"sweep": answered, "configValidationWarnings": []}}


def _sweep_fields(state: State, sweep: Sweep) -> dict[str, Any]:
    runs = state.sweep_runs(sweep)
    return {
        "__typename": "Sweep",
        "id": sweep.id,
        "name": sweep.name,
        "displayName": sweep.name,
        "method": "grid",
        "state": sweep.state,
        "description": None,
        "config": sweep.config_yaml,
        "createdAt": _iso(time.time()),
        "updatedAt": _iso(time.time()),
        "heartbeatAt": _iso(time.time()),
        "bestLoss": None,
        "controller": None,
        "scheduler": None,
        "earlyStopJobRunning": False,
        "runCount": len(runs),
        "runCountExpected": len(sweep.trials),
        "runs": {"edges": [{"node": _fragment(run)} for run in runs]},
    }


@_operation("SweepWithRuns", "GetSweep", "GetSweepLegacy", "GetSweepState", "SweepConfig")
def _sweep(state: State, variables: Variables, query: str) -> dict[str, Any]:
    sweep = state.sweeps.get(variables.get("sweep") or variables.get("name") or "")
    return {"project": {"sweep": _sweep_fields(state, sweep) if sweep else None}}


@_operation("CreateAgent")
def _create_agent(state: State, variables: Variables, query: str) -> dict[str, Any]:
    agent = Agent(f"agent{len(state.agents)}", variables["sweep"], variables.get("host") or "")
    state.agents[agent.id] = agent
    return {"createAgent": {"agent": {"id": agent.id}}}


@_operation("Heartbeat")
def _heartbeat(state: State, variables: Variables, query: str) -> dict[str, Any]:
    agent = state.agents[variables["id"]]
    sweep = state.sweeps[agent.sweep]
    running = json.loads(variables.get("runState") or "{}")
    commands: list[dict[str, Any]] = [
        {"type": "stop", "run_id": run.name}
        for run in state.sweep_runs(sweep)
        if run.name in running and run.stop_requested
    ]
    if not commands and not running:
        trial = sweep.next_trial()
        if trial is None:
            commands.append({"type": "exit"})
        else:
            commands.append(_hand_out(state, agent, sweep, trial))
    return {"agentHeartbeat": {"agent": {"id": agent.id}, "commands": json.dumps(commands)}}


def _hand_out(state: State, agent: Agent, sweep: Sweep, trial: dict[str, Any]) -> dict[str, Any]:
    import yaml

    run = state.run(sweep.entity, sweep.project, f"{sweep.name}run{sweep.handed_out}")
    run.sweep, run.state = sweep.name, "pending"
    agent.runs.append(run.name)
    program = (yaml.safe_load(sweep.config_yaml) or {}).get("program")
    arguments = {name: {"value": value} for name, value in trial.items()}
    return {"type": "run", "run_id": run.name, "program": program, "args": arguments}
