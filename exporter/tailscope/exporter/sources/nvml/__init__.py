"""GPUs, read through NVIDIA's NVML library, with GPM for what their multiprocessors do."""
