//go:build !linux

package cri

import "github.com/kubeletkit/kubeletkit/runtime/cri/internal/translate"

// findNode returns no facts on systems other than Linux.
func findNode(opts *Options) *translate.Node {
	return &translate.Node{SeccompProfileRoot: opts.SeccompProfileRoot, SeccompDefault: opts.SeccompDefault}
}
