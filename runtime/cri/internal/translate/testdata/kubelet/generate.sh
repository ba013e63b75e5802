#!/bin/sh
# Makes golden.jsonl from cases.yaml with the code of kubelet. See README.md.
set -eu
version=v1.36.3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cd "$work"
src=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
mkdir k
cp -r "$src/go.mod" "$src/go.sum" "$src/pkg" "$src/third_party" k/
chmod -R u+w k
cd k
sed -i -E "s#=> \./staging/src/(k8s\.io/[a-z-]+)#=> \1 v0${version#v1}#" go.mod
find . -name '*_test.go' -delete
cp "$here/shim.go.txt" pkg/kubelet/kuberuntime/oracle.go
cp "$here/oracle_test.go.txt" pkg/kubelet/oracle_test.go
ORACLE_CASES="$here/cases.yaml" ORACLE_OUT="$here/golden.jsonl" \
	go test -mod=mod -count=1 -run TestOracle ./pkg/kubelet
