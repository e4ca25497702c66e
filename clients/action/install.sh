#!/bin/sh
# Installs a release of umbra, checked against its SHA256SUMS, or takes the one on
# the PATH.
set -eu

if [ -z "$UMBRA_VERSION_WANTED" ]; then
	if ! command -v umbra >/dev/null; then
		echo "::error::umbra is not on the PATH; set umbra-version to install a release"
		exit 1
	fi
	exit 0
fi
case $UMBRA_VERSION_WANTED in
*[!A-Za-z0-9._-]*) echo "::error::umbra-version is a release such as v1.2.0" && exit 1 ;;
esac
case $(uname -s) in
Linux) os=linux ;;
Darwin) os=darwin ;;
*) echo "::error::umbra has no release for $(uname -s)" && exit 1 ;;
esac
case $(uname -m) in
x86_64 | amd64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*) echo "::error::umbra has no release for $(uname -m)" && exit 1 ;;
esac
name=umbra-$UMBRA_VERSION_WANTED-$os-$arch
base=$GITHUB_SERVER_URL/$GITHUB_ACTION_REPOSITORY/releases/download/$UMBRA_VERSION_WANTED
dir=$RUNNER_TEMP/umbra-install
rm -rf "$dir"
mkdir -p "$dir"
cd "$dir"
for file in "$name.tar.gz" SHA256SUMS; do
	curl --fail --silent --show-error --location --retry 3 --output "$file" "$base/$file"
done
grep "  $name.tar.gz\$" SHA256SUMS >sum
if command -v sha256sum >/dev/null; then
	sha256sum -c sum >/dev/null
else
	shasum -a 256 -c sum >/dev/null
fi
tar -xzf "$name.tar.gz"
echo "$dir/$name/bin" >>"$GITHUB_PATH"
