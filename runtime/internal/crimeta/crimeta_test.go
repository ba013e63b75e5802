package crimeta_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func TestReadRecordBroken(t *testing.T) {
	got, err := crimeta.ReadRecord(nil)
	assert.NoError(t, err)
	assert.Zero(t, got)
	assert.Nil(t, got.GracePeriod())

	got, err = crimeta.ReadRecord(map[string]string{
		crimeta.AnnotationHash:                   "zz",
		crimeta.AnnotationRestartCount:           "many",
		crimeta.AnnotationDeletionGracePeriod:    "",
		crimeta.AnnotationTerminationGracePeriod: "30",
		crimeta.AnnotationPreStop:                "{",
		crimeta.AnnotationPorts:                  "{}",
		crimeta.AnnotationBackoff:                "-10s",
		crimeta.AnnotationResizeHash:             "-1",
	})
	assert.Equal(t, crimeta.Record{TerminationGracePeriod: new(int64(30))}, got, "what can be read is read")
	for _, key := range []string{crimeta.AnnotationHash, crimeta.AnnotationRestartCount,
		crimeta.AnnotationDeletionGracePeriod, crimeta.AnnotationPreStop, crimeta.AnnotationPorts,
		crimeta.AnnotationResizeHash} {
		assert.ErrorContains(t, err, key)
	}
}

// A container whose resources may all change in place has no annotation for them.
func TestResizeHash(t *testing.T) {
	c := &v1.Container{Name: "a"}
	annotations, err := crimeta.ContainerAnnotations(&v1.Pod{}, c, 0, nil)
	require.NoError(t, err)
	assert.NotContains(t, annotations, crimeta.AnnotationResizeHash)
	c.ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
	annotations, err = crimeta.ContainerAnnotations(&v1.Pod{}, c, 0, nil)
	require.NoError(t, err)
	r, err := crimeta.ReadRecord(annotations)
	require.NoError(t, err)
	assert.Equal(t, podspec.ResizeHash(&v1.Pod{}, c), r.ResizeHash)
}

func TestRefFromLabels(t *testing.T) {
	labels := map[string]string{crimeta.LabelPodName: "n", crimeta.LabelPodNamespace: "ns", crimeta.LabelPodUID: "u"}
	_, ok := crimeta.RefFromLabels(labels)
	assert.True(t, ok)
	for key := range labels {
		broken := map[string]string{crimeta.LabelPodName: "n", crimeta.LabelPodNamespace: "ns",
			crimeta.LabelPodUID: "u"}
		delete(broken, key)
		_, ok := crimeta.RefFromLabels(broken)
		assert.False(t, ok, key)
	}
}

func TestLogPaths(t *testing.T) {
	ref := runtime.PodRef{UID: "u", Namespace: "ns", Name: "n"}
	assert.Equal(t, "/var/log/pods/ns_n_u", crimeta.LogDirectory("/var/log/pods/", ref))
	assert.Equal(t, "main/3.log", crimeta.LogPath("main", 3))
	assert.Equal(t, "n_ns_main-abc.log", crimeta.LogLink(ref, "main", "abc"))
	ref.Name = strings.Repeat("n", 250)
	assert.Equal(t, ref.Name+"_.log", crimeta.LogLink(ref, "main", "abc"), "255 bytes at most")
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
		assert.Equal(t, tc.want, crimeta.NextRestartCount(tc.names), tc.names)
	}
}
