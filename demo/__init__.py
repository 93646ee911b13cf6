"""Demo that stages incidents on a local cluster and checks that gold alone reveals each one."""
