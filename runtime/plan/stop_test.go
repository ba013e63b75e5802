package plan_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

func TestStopOrder(t *testing.T) {
	for _, tc := range []struct{ name, pod, running, want string }{
		{
			name: "nothing runs",
			pod:  "Always; sidecar s; main m",
		},
		{
			name:    "main containers side by side",
			pod:     "Always; main m; main n",
			running: "n#0 running; m#0 running",
			want:    "n m",
		},
		{
			name:    "sidecars after them in reverse order",
			pod:     "Always; sidecar r; init a; sidecar s; main m; main n",
			running: "r#0 running; s#0 running; m#0 running; n#0 running",
			want:    "m n | s | r",
		},
		{
			name:    "sidecars without main containers",
			pod:     "Always; sidecar r; sidecar s; main m",
			running: "r#0 running; s#0 running",
			want:    "s | r",
		},
		{
			name:    "an init container before the sidecars it may need",
			pod:     "Always; sidecar s; init a; main m",
			running: "s#0 running; a#0 running",
			want:    "a | s",
		},
		{
			name:    "nothing waits for ephemeral containers",
			pod:     "Always; sidecar s; main m; ephemeral e",
			running: "e#0 running; s#0 running; m#0 running",
			want:    "m | s e",
		},
		{
			name:    "ephemeral containers alone",
			pod:     "Always; main m; ephemeral e",
			running: "e#0 running",
			want:    "e",
		},
		{
			name:    "two instances of one container and a stranger",
			pod:     "Always; sidecar s; main m",
			running: "s#1 running; s#0 unknown; m#0 running; x#0 running",
			want:    "m x | s s",
		},
		{
			name:    "no spec",
			running: "s#0 running; m#0 running",
			want:    "s m",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := parsePod(t, tc.pod)
			if tc.pod == "" {
				pod = nil
			}
			var groups []string
			for _, group := range plan.StopOrder(pod, parseStatus(t, tc.running).Containers) {
				var names []string
				for _, n := range group {
					names = append(names, n.Name)
				}
				groups = append(groups, strings.Join(names, " "))
			}
			assert.Equal(t, tc.want, strings.Join(groups, " | "))
		})
	}
}
