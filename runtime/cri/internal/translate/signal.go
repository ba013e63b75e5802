package translate

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// signalPrefix is the prefix of CRI's signal names.
const signalPrefix = "SIGNAL_"

// Real-time signals are "SIGRTMIN+1" and "SIGRTMAX-1" in the API, "SIGRTMINPLUS1" and
// "SIGRTMAXMINUS1" in CRI.
var (
	signalToCRI   = strings.NewReplacer("+", "PLUS", "-", "MINUS")
	signalFromCRI = strings.NewReplacer("PLUS", "+", "MINUS", "-")
)

// stopSignal returns the stop signal of the container's spec. The default is that of its
// image.
func stopSignal(c *v1.Container) (criv1.Signal, error) {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return criv1.Signal_SIGNAL_RUNTIME_DEFAULT, nil
	}
	name := string(*c.Lifecycle.StopSignal)
	n, ok := criv1.Signal_value[signalPrefix+signalToCRI.Replace(name)]
	if !ok || n == int32(criv1.Signal_SIGNAL_RUNTIME_DEFAULT) {
		return 0, fmt.Errorf("unknown stopSignal %q", name)
	}
	return criv1.Signal(n), nil
}

// StopSignalFromCRI returns the API's name of a container's stop signal, nil if the runtime
// does not report it.
func StopSignalFromCRI(s criv1.Signal) *v1.Signal {
	name, ok := criv1.Signal_name[int32(s)]
	if !ok || s == criv1.Signal_SIGNAL_RUNTIME_DEFAULT {
		return nil
	}
	signal := v1.Signal(signalFromCRI.Replace(strings.TrimPrefix(name, signalPrefix)))
	return &signal
}
