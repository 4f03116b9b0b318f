"""Boards without Grafana: an HTML page and a picture, from the data of a Prometheus.

Enough to see layout, units, emptiness and shapes; not what Grafana itself would draw.
"""
