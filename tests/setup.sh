#!/usr/bin/env bash
# Fetches the programs that the tests run beside Tailscope: Prometheus, promtool, amtool,
# VictoriaMetrics, Chromium. The first four are unpacked into .tools, not installed: no root, no service.
# Chromium and a C compiler need system libraries, so they are installed, where that may be done.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v apt-get >/dev/null; then
  echo "This is no Debian: install prometheus, prometheus-alertmanager, victoria-metrics and chromium yourself."
  exit 0
fi

has() { [ -x ".tools/usr/bin/$1" ] || command -v "$1" >/dev/null; }

if ! { has prometheus && has promtool && has amtool && has victoria-metrics; }; then
  echo "Fetching Debian's Prometheus, Alertmanager and VictoriaMetrics into .tools: 70 MB."
  lists=$PWD/.tools/apt
  mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial"
  # Lists of our own: reading the system's may need root, and they may be missing or old.
  apt=(apt-get -qq -o "Dir::State::Lists=$lists/lists" -o "Dir::Cache=$lists/cache"
    -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
  "${apt[@]}" update
  (cd .tools && "${apt[@]}" download prometheus prometheus-alertmanager victoria-metrics)
  for package in .tools/*.deb; do
    dpkg -x "$package" .tools
  done
  rm -rf .tools/*.deb "$lists"
fi

if ! command -v cc >/dev/null; then
  if [ "$(id -u)" = 0 ]; then
    echo "Installing a C compiler for the fake GPU library of the tests: 150 MB."
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends gcc libc6-dev \
      >/dev/null
  else
    echo "A C compiler is missing and you are not root: the GPU tests will fail."
    echo "To run them: sudo apt-get install gcc libc6-dev"
  fi
fi

if ! command -v openssl >/dev/null; then
  if [ "$(id -u)" = 0 ]; then
    echo "Installing openssl for the certificates of the tests."
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends openssl >/dev/null
  else
    echo "openssl is missing and you are not root: the test of TLS will be skipped."
    echo "To run it: sudo apt-get install openssl"
  fi
fi

if ! command -v chromium >/dev/null; then
  if [ "$(id -u)" = 0 ]; then
    echo "Installing Debian's Chromium for the browser tests: 100 MB."
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium \
      >/dev/null
  else
    echo "Chromium is missing and you are not root: the browser tests will be skipped."
    echo "To run them too: sudo apt-get install chromium"
  fi
fi
