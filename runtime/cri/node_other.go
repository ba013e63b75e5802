//go:build !linux

package cri

import "github.com/kubeletkit/kubeletkit/runtime/cri/internal/translate"

// findNode knows nothing of other systems than Linux.
func findNode(opts *Options) *translate.Node {
	return &translate.Node{SeccompProfileRoot: opts.SeccompProfileRoot, SeccompDefault: opts.SeccompDefault}
}
