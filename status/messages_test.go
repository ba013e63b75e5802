package status_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/status"
)

// One error names thousands of volumes, and is the message of each container that waits.
func TestMessagesAreBounded(t *testing.T) {
	long := strings.Repeat("volume ö of pod default/web: configmap not found\n", 50_000)
	for name, tc := range map[string]struct {
		containers int
		most       int
	}{
		"one":      {1, 64 << 10},
		"a few":    {4, 16 << 10},
		"thousand": {1000, 256},
	} {
		t.Run(name, func(t *testing.T) {
			pod := testpod.New("web")
			pod.Spec.Containers = nil
			in := status.Input{Pod: pod, Now: time.Unix(1e9, 0), Waiting: map[string]v1.ContainerStateWaiting{}}
			for i := range tc.containers {
				c := fmt.Sprintf("c%d", i)
				pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: c, Image: "i"})
				in.Waiting[c] = v1.ContainerStateWaiting{Reason: "ContainerCreating", Message: long}
			}
			in.Override = func(s *v1.PodStatus) {
				s.Message = long
				s.Conditions = append(s.Conditions, v1.PodCondition{Type: v1.DisruptionTarget, Message: long})
			}
			s := status.Generate(in)
			require.Len(t, s.ContainerStatuses, tc.containers)
			message := s.ContainerStatuses[0].State.Waiting.Message
			assert.LessOrEqual(t, len(message), tc.most)
			assert.Greater(t, len(message), tc.most-10)
			assert.True(t, utf8.ValidString(message))
			assert.True(t, strings.HasSuffix(message, "…"))
			data, err := json.Marshal(s)
			require.NoError(t, err)
			assert.Less(t, len(data), 1<<20, "an API server accepts it")
		})
	}
	short := status.Generate(status.Input{Pod: testpod.New("web", testpod.Containers("a")),
		Waiting: map[string]v1.ContainerStateWaiting{"a": {Reason: "R", Message: "short"}}})
	assert.Equal(t, "short", short.ContainerStatuses[0].State.Waiting.Message)
}
