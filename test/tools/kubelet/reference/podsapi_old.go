//go:build v1.35

package main

// podsAPIDir is the directory of an API that kubelet 1.35 does not have.
const podsAPIDir = ""
