"""Entry point for `python -m engine.telemetry.shipper`, which runs only the shipper."""

from engine.telemetry.commands import app

if __name__ == "__main__":
    app(prog_name="shipper")
