"""``python -m agentsession.host.cli``: the command, where no script was installed."""

from __future__ import annotations

import sys

from agentsession.host.cli._main import main

sys.exit(main())
