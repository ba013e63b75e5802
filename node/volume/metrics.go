package volume

import (
	"context"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// SetUpCall is the measurement of a call of [Plugin].SetUp, also of those that found the volume ready:
// storage_operation_duration_seconds with the operation_name volume_mount. Its status is success or fail-unknown.
// Plugin is the name of the plugin, and [PersistentPlugin].MeasuredName for a volume of such a plugin.
type SetUpCall struct {
	Plugin string
	Took   time.Duration
	Err    error
}

// TearDownCall is the measurement of a call of [Plugin].TearDown: storage_operation_duration_seconds with the
// operation_name volume_unmount.
type TearDownCall struct {
	Plugin string
	Took   time.Duration
	Err    error
}

// DriverCall is the measurement of a call of a driver by package csi: csi_operations_seconds.
type DriverCall struct {
	Driver string
	// Method is the full name of the method, such as "/csi.v1.Node/NodePublishVolume".
	Method string
	// Code is the gRPC code of the answer, such as "OK".
	Code string
	Took time.Duration
}

// IsMeasurement implements [runtime.Measurement].
func (DriverCall) IsMeasurement() {}

// PodVolumes is the measurement of the volumes of a pod by their plugins, after each call of SetUp or TearDown of the
// [Manager]: those that the pod is to have, and those that it has. Both are nil when nothing of them is left.
// volume_manager_total_volumes in the states desired_state_of_world and actual_state_of_world.
type PodVolumes struct {
	Pod             runtime.PodRef
	Desired, Actual map[string]int
}

// IsMeasurement implements [runtime.Measurement].
func (PodVolumes) IsMeasurement() {}

// measured is the name of the plugin in the measurement of a call, which only a [PersistentPlugin] may change.
type measured struct{ name string }

type measuredKey struct{}

// withMeasured hands the name to the call.
func withMeasured(ctx context.Context, name string) (context.Context, *measured) {
	m := &measured{name}
	return context.WithValue(ctx, measuredKey{}, m), m
}

// measureAs has the call measured as one of the plugin of the volume.
func measureAs(ctx context.Context, p PersistentPlugin, key string) {
	if m, ok := ctx.Value(measuredKey{}).(*measured); ok {
		m.name = measuredName(p, key)
	}
}

func measuredName(p PersistentPlugin, key string) string {
	if name := p.MeasuredName(key); name != "" {
		return name
	}
	return p.Name()
}

// SELinuxConflict is the measurement of a claim whose containers have different SELinux labels, or whose volume another
// pod uses with another one: volume_manager_selinux_pod_context_mismatch_errors_total or
// volume_manager_selinux_volume_context_mismatch_errors_total, and _warnings_total if the claim is not refused.
type SELinuxConflict struct {
	// Plugin is the name of the plugin if another pod uses the volume, such as "kubernetes.io/csi/NAME" for a driver.
	// Otherwise it is empty.
	Plugin string
	// AccessMode is RWX, ROX, RWO or RWOP.
	AccessMode string
	Refused    bool
}

// IsMeasurement implements [runtime.Measurement].
func (SELinuxConflict) IsMeasurement() {}

// SELinuxAdmitted is the measurement of a volume that is mounted with an SELinux label, for its first pod:
// volume_manager_selinux_volumes_admitted_total. The fields are those of [SELinuxConflict].
type SELinuxAdmitted struct{ Plugin, AccessMode string }

// IsMeasurement implements [runtime.Measurement].
func (SELinuxAdmitted) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (SetUpCall) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (TearDownCall) IsMeasurement() {}
