package main

import (
	"errors"

	_ "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
	metricsfeatures "k8s.io/component-base/metrics/features"
	_ "k8s.io/controller-manager/pkg/features/register"
	_ "k8s.io/kubernetes/pkg/features"
)

// featureGate is a feature gate that kubelet accepts.
type featureGate struct {
	Default bool `json:"default"`
	Locked  bool `json:"locked"`
}

// gates prints the feature gates that kubelet accepts, by their names: those that its packages register.
//
//	reference gates
func gates([]string) (any, error) {
	gate := utilfeature.DefaultMutableFeatureGate
	if err := errors.Join(logsapi.AddFeatureGates(gate), metricsfeatures.AddFeatureGates(gate)); err != nil {
		return nil, err
	}
	found := map[string]featureGate{}
	for name, spec := range gate.GetAll() {
		found[string(name)] = featureGate{Default: spec.Default, Locked: spec.LockToDefault}
	}
	return found, nil
}
