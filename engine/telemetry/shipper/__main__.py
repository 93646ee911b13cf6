"""`python -m engine.telemetry.shipper`: the shipper without the rest of the command line."""

from engine.telemetry.commands import app

if __name__ == "__main__":
    app(prog_name="shipper")
