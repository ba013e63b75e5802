package dra

import (
	"time"

	resourceapi "k8s.io/api/resource/v1"
)

// The names of operations. They are the labels of kubelet's metric.
const (
	operationPrepare   = "PrepareResources"
	operationUnprepare = "UnprepareResources"
)

// Operation is the measurement of the claims of a pod that were prepared or unprepared, or could not be:
// dra_operations_duration_seconds.
type Operation struct {
	// Name is PrepareResources or UnprepareResources.
	Name string
	Took time.Duration
	Err  error
}

// InUse is the measurement of the number of claims that are prepared, when it may have changed:
// dra_resource_claims_in_use.
type InUse struct {
	// ByDriver has the drivers whose claims are in use. A claim may have devices of several drivers. It is read-only.
	ByDriver map[string]int
	All      int
}

// Call is the measurement of a gRPC call of a driver that is a plugin: dra_grpc_operations_duration_seconds. Package
// node/dra/plugin measures it.
type Call struct {
	Driver string
	// Method is the full name of the method, and Code the name of the status code.
	Method, Code string
	Took         time.Duration
}

// Skip is the measurement of a call of a driver that was not made, since all its devices in a claim skip the operation:
// dra_node_prepare_skips_total and dra_node_unprepare_skips_total.
type Skip struct {
	Driver string
	// Operation is NodePrepareResources or NodeUnprepareResources.
	Operation resourceapi.SkipNodeOperation
}

// IsMeasurement implements [runtime.Measurement].
func (Operation) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (InUse) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (Call) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (Skip) IsMeasurement() {}

// measure measures an operation, and the claims that are in use after it, one goroutine at a time, so that the last
// measurement has the last state.
func (m *Manager) measure(name string, began time.Time, err error) {
	m.node.Measure(Operation{Name: name, Took: time.Since(began), Err: err})
	m.mu.Lock()
	m.unmeasured = true
	m.mu.Unlock()
	m.afterUnlock.Add(m.measureInUse)
	m.afterUnlock.Run()
}

// measureInUse measures the claims in use, unless that was done since they have changed.
func (m *Manager) measureInUse() {
	m.mu.Lock()
	if !m.unmeasured {
		m.mu.Unlock()
		return
	}
	m.unmeasured = false
	inUse := m.inUse()
	m.mu.Unlock()
	m.node.Measure(inUse)
}

// inUse counts the claims that are prepared. mu is held.
func (m *Manager) inUse() InUse {
	out := InUse{ByDriver: map[string]int{}}
	if m.state == nil {
		return out
	}
	for _, c := range m.state.claims {
		if !c.prepared {
			continue
		}
		out.All++
		for driver := range c.Drivers {
			out.ByDriver[driver]++
		}
	}
	return out
}
