package translate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestRecordRoundTrip(t *testing.T) {
	in := sample(func(c *Container) {
		c.RestartCount = 41
		c.Pod.Spec.Spec.TerminationGracePeriodSeconds = new(int64(30))
		c.Spec.TerminationMessagePath = "/dev/termination-log"
		c.Spec.TerminationMessagePolicy = v1.TerminationMessageReadFile
		c.Spec.Ports = []v1.ContainerPort{{Name: "http", ContainerPort: 80, Protocol: v1.ProtocolTCP}}
		c.Spec.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", "<&>"}}}}
		c.Extras.Annotations = map[string]string{"vendor.example/x": "y", annotationHash: "beef"}
	})
	config, err := ContainerConfig(t.Context(), in)
	require.NoError(t, err)
	assert.Equal(t, "y", config.Annotations["vendor.example/x"])

	got, err := ReadRecord(config.Annotations)
	require.NoError(t, err)
	assert.Equal(t, Record{
		Hash:                     runtime.ContainerHash(in.Spec),
		RestartCount:             41,
		TerminationGracePeriod:   new(int64(30)),
		TerminationMessagePath:   "/dev/termination-log",
		TerminationMessagePolicy: v1.TerminationMessageReadFile,
		PreStop:                  in.Spec.Lifecycle.PreStop,
		Ports:                    in.Spec.Ports,
	}, got)
	assert.Equal(t, int64(30), *got.GracePeriod())
	got.DeletionGracePeriod = new(int64(3))
	assert.Equal(t, int64(3), *got.GracePeriod(), "a deletion's comes first")

	ref, ok := RefFromLabels(config.Labels)
	assert.True(t, ok)
	assert.Equal(t, runtime.RefOf(in.Pod.Spec), ref)
}

func TestReadRecordBroken(t *testing.T) {
	got, err := ReadRecord(nil)
	assert.NoError(t, err)
	assert.Zero(t, got)
	assert.Nil(t, got.GracePeriod())

	got, err = ReadRecord(map[string]string{
		annotationHash:                   "zz",
		annotationRestartCount:           "many",
		annotationDeletionGracePeriod:    "",
		annotationTerminationGracePeriod: "30",
		annotationPreStop:                "{",
		annotationPorts:                  "{}",
	})
	assert.Equal(t, Record{TerminationGracePeriod: new(int64(30))}, got, "what can be read is read")
	for _, key := range []string{annotationHash, annotationRestartCount, annotationDeletionGracePeriod, annotationPreStop, annotationPorts} {
		assert.ErrorContains(t, err, key)
	}
}

func TestRefFromLabels(t *testing.T) {
	labels := map[string]string{LabelPodName: "n", LabelPodNamespace: "ns", LabelPodUID: "u"}
	_, ok := RefFromLabels(labels)
	assert.True(t, ok)
	for key := range labels {
		broken := map[string]string{LabelPodName: "n", LabelPodNamespace: "ns", LabelPodUID: "u"}
		delete(broken, key)
		_, ok := RefFromLabels(broken)
		assert.False(t, ok, key)
	}
}

func TestLogPaths(t *testing.T) {
	ref := runtime.PodRef{UID: "u", Namespace: "ns", Name: "n"}
	assert.Equal(t, "/var/log/pods/ns_n_u", LogDirectory("/var/log/pods/", ref))
	assert.Equal(t, "main/3.log", LogPath("main", 3))
	for _, tc := range []struct {
		names []string
		want  int32
	}{
		{nil, 0},
		{[]string{"0.log"}, 1},
		{[]string{"2.log", "10.log", "9.log"}, 11},
		{[]string{"4.log.20260101-000000.gz", "3.log"}, 5},
		{[]string{"x.log", "5.txt", "-7.log", "+8.log", "9.logs", "1.2.log", ".log"}, 0},
		{[]string{"99999999999999999999.log", "2147483647.log", "1.log"}, 2},
	} {
		assert.Equal(t, tc.want, NextRestartCount(tc.names), tc.names)
	}
}
