"""Start ``gatekeeper …`` or ``wandb …`` as their scripts do, with an agent that looks for work more often.

The SDK's command agent sleeps 5 s after every look; nothing but that constant is changed.
"""

import sys

from wandb.wandb_agent import Agent

Agent.POLL_INTERVAL = 0.2

name, *arguments = sys.argv[1:]
sys.argv = [name, *arguments]
if name == "gatekeeper":
    from gatekeeper.cli import main
else:
    from wandb.cli.cli import cli as main

main()
