"""A recording of a real inference server, played in real time into the ordinary pipeline."""
