"""The group `foreign` (torch 2, transformers) runs where SIGHTLINE_FOREIGN=1, in an environment of its own."""
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # plain.py, also from foreign/
collect_ignore = [] if os.environ.get("SIGHTLINE_FOREIGN") == "1" else ["foreign"]
