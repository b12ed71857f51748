"""``python -m gatekeeper_wandb COMMAND…``: one trial's command behind the gate."""

from gatekeeper_wandb.trial import main

main()
