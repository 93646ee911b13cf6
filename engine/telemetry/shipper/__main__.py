"""`python -m engine.telemetry.shipper`: runs the shipper without the other commands."""

from engine.telemetry.commands import app

if __name__ == "__main__":
    app(prog_name="shipper")
