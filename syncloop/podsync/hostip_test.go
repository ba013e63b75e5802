package podsync_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop/podsync"
)

// A pod whose node gets an address of another family has kubelet's event, once.
func TestHostIPOfAnotherFamily(t *testing.T) {
	var events []runtime.Event
	ips := []string{"192.0.2.1"}
	s := newSyncer(t, &world{}, podsync.Options{HostIPs: func() []string { return ips },
		Observer: runtime.Observer{NonBlocking: true, Event: func(e runtime.Event) { events = append(events, e) }}})
	pod := makePod()
	for _, list := range [][]string{{"192.0.2.1"}, {"192.0.2.2"}, {}, {"2001:db8::1", "192.0.2.2"},
		{"2001:db8::1", "192.0.2.2"}} {
		ips = list
		_, err := s.SyncPod(t.Context(), podworkers.Sync, pod, observed(runtime.ContainerRunning, 0))
		require.NoError(t, err)
	}
	assert.Equal(t, []runtime.Event{{Pod: runtime.RefOf(pod), Type: v1.EventTypeWarning,
		Reason: "HostIPsIPFamilyMismatch", Message: "Kubelet detected an IPv4 node IP (192.0.2.2), but the cloud " +
			"provider selected an IPv6 node IP (2001:db8::1); pass an explicit `--node-ip` to kubelet to fix this."}},
		events)
}

// A resize that is in progress is measured, when it begins and when it ends, also by the end of the pod.
func TestResizesInProgressAreMeasured(t *testing.T) {
	r := &resizer{t: t}
	var got []runtime.Measurement
	r.Syncer = newSyncer(t, &r.world, podsync.Options{Observer: runtime.Observer{NonBlocking: true,
		Measure: func(m runtime.Measurement) { got = append(got, m) }}})
	began, ended := podsync.ResizeInProgress{Began: true}, podsync.ResizeInProgress{}
	r.sync(resizedPod(1, "1Gi", "1Gi"), "1Gi", "")
	assert.Empty(t, got)
	r.sync(resizedPod(2, "2Gi", "2Gi"), "1Gi", "busy")
	assert.Equal(t, []runtime.Measurement{began}, got)
	r.sync(resizedPod(2, "2Gi", "2Gi"), "2Gi", "")
	assert.Equal(t, []runtime.Measurement{began, ended}, got)
	r.sync(resizedPod(3, "3Gi", "3Gi"), "2Gi", "busy")
	require.NoError(t, r.SyncTerminatedPod(t.Context(), resizedPod(3, "3Gi", "3Gi"), withLimit("2Gi")))
	assert.Equal(t, []runtime.Measurement{began, ended, began, ended}, got)
}
