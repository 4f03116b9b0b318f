"""Nothing acknowledged is lost, however often the exporter is killed."""
