#!/usr/bin/env bash
# Fetches the programs that the tests run beside Tailscope: Prometheus, promtool, amtool,
# VictoriaMetrics, Chromium. The first four are unpacked into .tools, not installed: no root, no service.
# What needs system libraries is installed, where that may be done.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v apt-get >/dev/null; then
  echo "This is no Debian: install prometheus, prometheus-alertmanager, victoria-metrics and chromium yourself."
  exit 0
fi

# again WHAT COMMAND...: a download may fail once, or another program may use apt at the moment.
again() {
  local what=$1 pause
  shift
  for pause in 5 20 0; do
    if "$@"; then return; fi
    if [ "$pause" != 0 ]; then
      echo "$what failed; trying again in $pause s."
      sleep "$pause"
    fi
  done
  echo "$what failed three times. Is the network there? See what apt says above."
  return 1
}

has() { [ -x ".tools/usr/bin/$1" ] || command -v "$1" >/dev/null; }

if ! { has prometheus && has promtool && has amtool && has victoria-metrics; }; then
  echo "Fetching Debian's Prometheus, Alertmanager and VictoriaMetrics into .tools: 70 MB."
  lists=$PWD/.tools/apt
  mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial"
  # Lists of our own: reading the system's may need root, and they may be missing or old.
  apt=(apt-get -qq -o "Dir::State::Lists=$lists/lists" -o "Dir::Cache=$lists/cache"
    -o Debug::NoLocking=1 -o APT::Sandbox::User=root -o Acquire::Retries=3)
  fetch() {
    "${apt[@]}" update &&
      (cd .tools && "${apt[@]}" download prometheus prometheus-alertmanager victoria-metrics)
  }
  again "Fetching" fetch
  for package in .tools/*.deb; do
    dpkg -x "$package" .tools
  done
  rm -rf .tools/*.deb "$lists"
fi

install() {
  local apt=(apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)
  "${apt[@]}" update &&
    DEBIAN_FRONTEND=noninteractive "${apt[@]}" install -y --no-install-recommends "$@" >/dev/null
}

# need PROGRAM "PACKAGES" "WHAT IT IS FOR"
need() {
  if command -v "$1" >/dev/null; then return; fi
  if [ "$(id -u)" = 0 ]; then
    echo "Installing $2 for $3."
    # shellcheck disable=SC2086
    again "Installing $2" install $2
  else
    echo "$1 is missing, and you are not root to install it for $3."
    echo "To install it: sudo apt-get install $2"
  fi
}

need cc "gcc libc6-dev" "the tests of GPUs (a fake driver library, 150 MB)"
need openssl openssl "the tests of TLS"
need systemd-analyze systemd "the test of the systemd unit (30 MB; nothing is started)"
need chromium chromium "the browser tests (100 MB)"
