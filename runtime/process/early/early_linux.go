package early

import "github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"

func init() { supervise.Init() }
