package crimeta_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

// Annotations and names of files are what the runtime returns.
func FuzzReadRecord(f *testing.F) {
	f.Add("1f", "3", "30", `{"exec":{"command":["x"]}}`, `[{"containerPort":80}]`, "3.log.gz")
	f.Fuzz(func(t *testing.T, hash, count, grace, hook, ports, log string) {
		annotations := map[string]string{
			crimeta.AnnotationHash: hash, crimeta.AnnotationRestartCount: count,
			crimeta.AnnotationDeletionGracePeriod:    grace,
			crimeta.AnnotationTerminationGracePeriod: grace, crimeta.AnnotationPreStop: hook,
			crimeta.AnnotationPorts: ports,
		}
		r, err := crimeta.ReadRecord(annotations)
		if err == nil {
			require.NotNil(t, r.GracePeriod())
			require.NotNil(t, r.PreStop)
		}
		h, hashErr := crimeta.ReadHash(annotations)
		require.Equal(t, h, r.Hash)
		require.True(t, hashErr == nil || err != nil)
		require.GreaterOrEqual(t, crimeta.NextRestartCount([]string{log}), int32(0))
	})
}
