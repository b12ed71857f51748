"""The reinforcement learners: tabular Q-learning, DQN, REINFORCE and PPO, with noisy returns as they come."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from judgment import autograd as ag
from judgment.autograd import Array, Node, Params
from judgment.loop import Fault, Optimizer, gradients, norm
from judgment.record import Recorder, Truth
from judgment.tasks import dense_params, stack
from judgment.worlds import Bandit, CartPole, Grid

Rng = np.random.Generator
NAN = float("nan")


@dataclass(frozen=True)
class RlConfig:
    """Hyperparameters of one run; which of them count depends on the learner."""

    learner: str  # grid, dqn, reinforce, ppo, bandit
    lr: float
    steps: int
    gamma: float = 0.99
    entropy_bonus: float = 0.01
    clip: float = 0.2
    epochs: int = 4
    explore: float = 1.0  # epsilon at the start
    explore_end: float = 0.05
    double: bool = False
    sync: int = 200  # steps between copies to the target network
    ends: bool = True  # whether the target stops at the episode's end
    optimism: float = 0.0
    anneal: bool = False
    names: str = "cleanrl"  # cleanrl or sb3
    world_seed: int = 3
    fault: Fault | None = None


def forward(params: Params, x: Array) -> Array:
    """Apply a two-layer tanh network outside the tape."""
    hidden = np.tanh(x @ params["l0.w"] + params["l0.b"])
    return np.asarray(hidden @ params["l1.w"] + params["l1.b"])


def softmax(logits: Array) -> Array:
    e = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


def sample(p: Array, rng: Rng) -> Array:
    """Draw an action per row; a policy of NaNs always answers 0."""
    return np.asarray((rng.random((len(p), 1)) > np.nan_to_num(p, nan=1.0).cumsum(1)[:, :-1]).sum(1))


def rate(config: RlConfig, fault: Fault, step: int) -> float:
    lr = config.lr * (1 - 0.95 * step / config.steps if config.anneal else 1.0)
    return lr * fault.factor if fault.kind == "lr" and fault.active(step) else lr


def learn_grid(config: RlConfig, seed: int) -> tuple[Recorder, str, str]:
    """Tabular Q-learning on the slippery grid, a row every ten episodes."""
    rng = np.random.default_rng(seed)
    grid = Grid(config.world_seed)
    fault = config.fault or Fault("none", at=config.steps + 1)
    out = Recorder(Truth("max", grid_chance(grid, rng), NAN))
    q = [[config.optimism] * 4 for _ in range(grid.size**2)]
    returns: list[float] = []
    starts: list[float] = []
    errors: list[float] = []
    for episode in range(config.steps):
        if fault.active(episode):
            out.fault_begins()
        alpha = rate(config, fault, episode)
        share = min(1.0, episode / (0.5 * config.steps))
        epsilon = config.explore + (config.explore_end - config.explore) * share
        gamma = fault.factor if fault.kind == "gamma" and fault.active(episode) else config.gamma
        sign = -1.0 if fault.kind == "ascent" and fault.active(episode) else 1.0
        luck = rng.random((grid.limit, 3)).tolist()
        state, total, done = 0, 0.0, False
        starts.append(max(q[0]))
        for turn, dice, slip in luck:
            row = q[state]
            action = int(dice * 4) if turn < epsilon else row.index(max(row))
            after, reward, done = grid.move(state, action, slip)
            total += reward
            best = 0.0 if done and config.ends else max(q[after])
            error = sign * reward + gamma * best - row[action]
            errors.append(error * error)
            row[action] += alpha * error
            state = after
            if done:
                break
        returns.append(total)
        if (episode + 1) % 10 == 0:
            loss, value = math.sqrt(sum(errors) / len(errors)), sum(starts) / 10
            out.check(loss, value)
            mean = sum(returns[-10:]) / 10
            out.truth.objective.append((out.row, mean))
            values = {"td_loss": loss, "q_mean": value, "mc_return": mean}
            out.log(episode=episode + 1, episode_return=mean, epsilon=epsilon, **values)
            errors, starts = [], []
    out.truth.q_ratio = ratio(max(q[0]), float(np.mean(returns[-200:])))
    out.truth.broken_at_end = not all(math.isfinite(v) for row in q for v in row)
    return out, "episode_return", "max"


def grid_chance(grid: Grid, rng: Rng) -> float:
    """Return the mean return of random moves."""
    totals = []
    for _ in range(300):
        state, total = 0, 0.0
        for dice, slip in rng.random((grid.limit, 2)).tolist():
            state, reward, done = grid.move(state, int(dice * 4), slip)
            total += reward
            if done:
                break
        totals.append(total)
    return float(np.mean(totals))


def ratio(foretold: float, got: float) -> float:
    """Return value foretold over return got, guarded near zero."""
    return foretold / max(abs(got), 0.1)


def learn_dqn(config: RlConfig, seed: int) -> tuple[Recorder, str, str]:
    """DQN on cart-pole (eight at a time), a row every fifty updates."""
    rng = np.random.default_rng(seed)
    fault = config.fault or Fault("none", at=config.steps + 1)
    out = Recorder(Truth("max", 22.0, NAN))
    n, capacity, batch = 8, 8000, 64
    world = CartPole(rng, n)
    q = dense_params(rng, (4, 64, 2))
    target = dict(q)
    optimizer = Optimizer("adam", q, 0.0)
    memory = [
        np.zeros((capacity, 4), np.float32),
        np.zeros(capacity, int),
        np.zeros(capacity, np.float32),
        np.zeros((capacity, 4), np.float32),
        np.zeros(capacity, np.float32),
    ]
    lengths: deque[int] = deque(maxlen=20)
    losses: list[float] = []
    values: list[float] = []
    for step in range(config.steps):
        broken = fault.active(step)
        if broken:
            out.fault_begins()
        epsilon = max(config.explore_end, config.explore * (1 - step / (0.4 * config.steps)))
        seen = world.state.astype(np.float32)
        greedy = forward(q, seen).argmax(1)
        action = np.where(rng.random(n) < epsilon, rng.integers(2, size=n), greedy)
        after, fell, _, finished = world.step(action)
        lengths.extend(finished)
        slots = (step * n + np.arange(n)) % capacity
        for store, part in zip(memory, (seen, action, np.ones(n), after, fell), strict=True):
            store[slots] = part
        index = rng.integers(min(capacity, (step + 1) * n), size=batch)
        x, a, r, x2, end = (store[index] for store in memory)
        gamma = fault.factor if fault.kind == "gamma" and broken else config.gamma
        ahead = forward(target, x2)
        choice = forward(q, x2).argmax(1) if config.double else ahead.argmax(1)
        best = ahead[np.arange(batch), choice]
        goal = (r + gamma * best * (1 - end if config.ends else 1)).astype(np.float32)
        nodes = ag.leaves(q)
        chosen = ag.pick(stack(nodes, ag.constant(x), 2, ag.tanh), a)
        loss = ag.squared_error(chosen, goal)
        ag.backward(loss)
        grads = gradients(nodes)
        out.check(float(loss.value), norm(grads))
        if not (broken and fault.kind == "frozen"):
            optimizer.update(q, grads, rate(config, fault, step))
        if step % config.sync == 0:
            target = dict(q)
        losses.append(float(loss.value))
        values.append(float(chosen.value.mean()))
        if (step + 1) % 50 == 0 and lengths:
            mean = float(np.mean(lengths))
            out.truth.objective.append((out.row, mean))
            out.log(
                **{
                    "time/total_timesteps": (step + 1) * n,
                    "rollout/ep_rew_mean": mean,
                    "rollout/exploration_rate": epsilon,
                    "train/loss": float(np.mean(losses)),
                    "train/q_values": float(np.mean(values)),
                    "train/mc_return": discounted(lengths, config.gamma),
                    "time/fps": 2100 + step % 50,
                }
            )
            losses, values = [], []
    out.truth.q_ratio = ratio(float(np.mean(forward(q, memory[0]).max(1))), discounted(lengths, config.gamma))
    out.truth.broken_at_end = not all(np.isfinite(v).all() for v in q.values())
    return out, "rollout/ep_rew_mean", "max"


def discounted(lengths: deque[int], gamma: float) -> float:
    """Return the mean discounted return along episodes of these lengths, seen from a random step of each."""
    full = np.array([float(n) for n in lengths])
    return float(np.mean((1 - gamma ** (full / 2)) / (1 - gamma))) if gamma < 1 else float(full.mean() / 2)


@dataclass
class Rollout:
    """A batch of experience from the cart-poles: (time, world) arrays."""

    seen: Array
    action: Array
    alive: Array  # 0 where the episode ended in a fall
    cut: Array  # 1 where the episode ended, by fall or by time
    after: Array


def act(world: CartPole, policy: Params, steps: int, rng: Rng, lengths: deque[int]) -> Rollout:
    """Play ``steps`` steps in every world."""
    stores: tuple[list[Array], ...] = ([], [], [], [], [])
    for _ in range(steps):
        x = world.state.astype(np.float32)
        action = sample(softmax(forward(policy, x)), rng)
        after, fell, late, finished = world.step(action)
        lengths.extend(finished)
        for store, part in zip(stores, (x, action, ~fell, fell | late, after), strict=True):
            store.append(part)
    return Rollout(*(np.array(store) for store in stores))


def policy_terms(nodes: dict[str, Node], x: Array, action: Array) -> tuple[Node, Node]:
    """Return the chosen actions' log-probabilities and the mean entropy."""
    log_p = ag.log_softmax(stack(nodes, ag.constant(x), 2, ag.tanh))
    entropy = ag.scale(ag.mean(ag.total(ag.mul(ag.exp(log_p), log_p), 1)), -1.0)
    return ag.pick(log_p, action), entropy


def learn_ppo(config: RlConfig, seed: int) -> tuple[Recorder, str, str]:
    """PPO (or, with one epoch and no critic's help, REINFORCE) on cart-pole; a row per iteration."""
    rng = np.random.default_rng(seed)
    fault = config.fault or Fault("none", at=config.steps + 1)
    out = Recorder(Truth("max", 22.0, NAN))
    n, horizon = 8, 64
    world = CartPole(rng, n)
    policy, critic = dense_params(rng, (4, 32, 2)), dense_params(rng, (4, 32, 1))
    policy["l1.w"] *= np.float32(0.1)
    p_opt, c_opt = Optimizer("adam", policy, 0.0), Optimizer("adam", critic, 0.0)
    lengths: deque[int] = deque(maxlen=20)
    reinforce = config.learner == "reinforce"
    for step in range(config.steps):
        broken = fault.active(step)
        if broken:
            out.fault_begins()
        lr = rate(config, fault, step)
        play = act(world, policy, horizon, rng, lengths)
        value = forward(critic, play.seen)[..., 0]
        ahead = forward(critic, play.after.astype(np.float32))[..., 0]
        advantage, later = np.zeros_like(value), np.zeros(n)
        for t in reversed(range(horizon)):
            delta = 1 + config.gamma * ahead[t] * play.alive[t] - value[t]
            later = delta + config.gamma * 0.95 * (1 - play.cut[t]) * later
            advantage[t] = later
        goal = (advantage + value).reshape(-1, 1).astype(np.float32)
        if broken and fault.kind == "ascent":
            advantage = -advantage
        x, a = play.seen.reshape(-1, 4), play.action.reshape(-1)
        adv = advantage.reshape(-1).astype(np.float32)
        adv = (adv - adv.mean()) / (adv.std() + np.float32(1e-6))
        old = np.log(softmax(forward(policy, x))[np.arange(len(a)), a] + np.float32(1e-12))
        explained = 1 - float(np.var(goal[:, 0] - value.reshape(-1)) / (np.var(goal) + 1e-9))
        loss_p = loss_v = entropy = size = 0.0
        for _ in range(1 if reinforce else config.epochs):
            for part in np.array_split(rng.permutation(len(a)), 1 if reinforce else 4):
                nodes = ag.leaves(policy)
                log_p, spread = policy_terms(nodes, x[part], a[part])
                change = np.exp(log_p.value - old[part])
                clipped = np.where(adv[part] > 0, change > 1 + config.clip, change < 1 - config.clip)
                weight = adv[part] * change * (1 if reinforce else ~clipped)
                goalward = ag.mean(ag.mul(log_p, ag.constant(-weight)))  # the clipped objective's gradient
                ag.backward(ag.sub(goalward, ag.scale(spread, config.entropy_bonus)))
                grads = gradients(nodes)
                size = norm(grads)
                if not (broken and fault.kind == "frozen"):
                    p_opt.update(policy, grads, lr)
                nodes = ag.leaves(critic)
                miss = ag.squared_error(stack(nodes, ag.constant(x[part]), 2, ag.tanh), goal[part])
                ag.backward(miss)
                c_opt.update(critic, gradients(nodes), lr * 3)
                loss_p, loss_v, entropy = float(goalward.value), float(miss.value), float(spread.value)
                out.check(loss_p, loss_v, size)
        new = np.log(softmax(forward(policy, x))[np.arange(len(a)), a] + np.float32(1e-12))
        kl = float(np.mean(np.exp(new - old) - 1 - (new - old)))
        mean = float(np.mean(lengths)) if lengths else NAN
        if not lengths:
            continue
        out.truth.objective.append((out.row, mean))
        out.truth.entropy.append((out.row, entropy))
        played = (step + 1) * n * horizon
        if reinforce:
            out.log(
                iteration=step + 1,
                episode_return=mean,
                policy_loss=loss_p,
                entropy=entropy,
                grad_norm=size,
                lr=lr,
            )
        elif config.names == "sb3":
            out.log(
                **{
                    "time/total_timesteps": played,
                    "rollout/ep_rew_mean": mean,
                    "train/value_loss": loss_v,
                    "train/policy_gradient_loss": loss_p,
                    "train/entropy_loss": -entropy,
                    "train/approx_kl": kl,
                    "train/explained_variance": explained,
                    "train/learning_rate": lr,
                }
            )
        else:
            out.log(
                **{
                    "global_step": played,
                    "charts/episodic_return": mean,
                    "losses/value_loss": loss_v,
                    "losses/policy_loss": loss_p,
                    "losses/entropy": entropy,
                    "losses/approx_kl": kl,
                    "losses/explained_variance": explained,
                    "charts/learning_rate": lr,
                }
            )
    out.truth.broken_at_end = not all(np.isfinite(v).all() for v in (*policy.values(), *critic.values()))
    metric = "episode_return" if reinforce else "charts/episodic_return"
    return out, "rollout/ep_rew_mean" if config.names == "sb3" and not reinforce else metric, "max"


def learn_bandit(config: RlConfig, seed: int) -> tuple[Recorder, str, str]:
    """Policy gradient on the contextual bandit: rewards noisier than what there is to learn."""
    rng = np.random.default_rng(seed)
    fault = config.fault or Fault("none", at=config.steps + 1)
    bandit = Bandit(config.world_seed)
    reference = bandit.contexts(np.random.default_rng(0), 500)
    expected = bandit.value(reference)
    out = Recorder(Truth("max", float(expected.mean()), NAN))
    policy = dense_params(rng, (2, 24, 5))
    optimizer = Optimizer("adam", policy, 0.0)
    base = 0.0
    for step in range(config.steps):
        broken = fault.active(step)
        if broken:
            out.fault_begins()
        x = bandit.contexts(rng, 32)
        action = sample(softmax(forward(policy, x)), rng)
        reward = bandit.pull(x, action, rng)
        if broken and fault.kind == "ascent":
            reward = -reward
        base += 0.05 * (float(reward.mean()) - base)
        nodes = ag.leaves(policy)
        log_p, spread = policy_terms(nodes, x, action)
        loss = ag.mean(ag.mul(log_p, ag.constant(base - reward)))
        ag.backward(ag.sub(loss, ag.scale(spread, config.entropy_bonus)))
        grads = gradients(nodes)
        lr = rate(config, fault, step)
        out.check(float(loss.value), norm(grads))
        if not (broken and fault.kind == "frozen"):
            optimizer.update(policy, grads, lr)
        true = float((softmax(forward(policy, reference)) * expected).sum(1).mean())
        out.truth.objective.append((out.row, true))
        out.truth.entropy.append((out.row, float(spread.value)))
        out.log(
            step=step,
            reward=float(reward.mean()),
            policy_loss=float(loss.value),
            entropy=float(spread.value),
            grad_norm=norm(grads),
            lr=lr,
        )
    out.truth.broken_at_end = not all(np.isfinite(v).all() for v in policy.values())
    return out, "reward", "max"


def learn(config: RlConfig, seed: int) -> tuple[Recorder, str, str]:
    """Run a learner by its name."""
    learners = {
        "grid": learn_grid,
        "dqn": learn_dqn,
        "ppo": learn_ppo,
        "reinforce": learn_ppo,
        "bandit": learn_bandit,
    }
    return learners[config.learner](config, seed)
