"""What every measurement that is published says of itself, and the digits that it keeps."""
import datetime
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def origin(command):
    """Date, commit of the tree and the command, without the paths of a machine."""
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout
    return {"date": datetime.date.today().isoformat(), "commit": commit.strip(), "command": command}


def write(path, document):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rounded(document), indent=1) + "\n")


def rounded(value):
    """Six significant digits: what a clock is worth."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(x) for key, x in value.items()}
    return [rounded(x) for x in value] if isinstance(value, list) else value
