package kubelet

import (
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
)

// logModules returns how much is logged from some source files.
func logModules(s *config.Settings) []terminal.Module {
	var list []terminal.Module
	for _, m := range s.Logging.VModule {
		list = append(list, terminal.Module{Pattern: m.FilePattern, Verbosity: int(m.Verbosity)})
	}
	return list
}
