package translate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func TestRecordRoundTrip(t *testing.T) {
	in := sample(func(c *Container) {
		c.RestartCount = 41
		c.Pod.Spec.Spec.TerminationGracePeriodSeconds = new(int64(30))
		c.Spec.TerminationMessagePath = "/dev/termination-log"
		c.Spec.TerminationMessagePolicy = v1.TerminationMessageReadFile
		c.Spec.Ports = []v1.ContainerPort{{Name: "http", ContainerPort: 80, Protocol: v1.ProtocolTCP}}
		c.Spec.Lifecycle = &v1.Lifecycle{
			PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", "<&>"}}}}
		c.Edits.Annotations = map[string]string{"vendor.example/x": "y", crimeta.AnnotationHash: "beef"}
	})
	config, err := ContainerConfig(t.Context(), in)
	require.NoError(t, err)
	assert.Equal(t, "y", config.Annotations["vendor.example/x"])

	got, err := crimeta.ReadRecord(config.Annotations)
	require.NoError(t, err)
	assert.Equal(t, crimeta.Record{
		Hash:                     podspec.ContainerHash(in.Spec),
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

	ref, ok := crimeta.RefFromLabels(config.Labels)
	assert.True(t, ok)
	assert.Equal(t, runtime.RefOf(in.Pod.Spec), ref)
}
