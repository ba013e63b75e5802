package csi

import (
	"crypto/sha256"
	"encoding/hex"
)

// Name is the name of the plugin, which is part of paths on disk and of names in the status of the node.
const Name = "kubernetes.io/csi"

// separator is between driver and handle in the name of a volume (kubelet: volNameSep).
const separator = "^"

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
