collect_ignore = ["runs.py", "verl_on_cpu.py", "verl_on_cpu_rollout.py"]  # they run where verl is
