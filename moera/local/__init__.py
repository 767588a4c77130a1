"""A whole run on one machine: the services as local processes, watched and restarted."""
