package plan_test

import "testing"

func TestInitContainers(t *testing.T) {
	runCases(t, []planCase{
		{
			name:   "the first",
			pod:    "Always; init a; init b; main m",
			status: "sandbox 0 ready",
			want:   "start a#0",
		},
		{
			name:   "the first runs",
			pod:    "Always; init a; init b; main m",
			status: "sandbox 0 ready; a#0 running",
			want:   "",
		},
		{
			name:   "the first is through",
			pod:    "Always; init a; init b; main m",
			status: "sandbox 0 ready; a#0 exited",
			want:   "start b#0",
		},
		{
			name:   "the last runs",
			pod:    "Always; init a; init b; main m",
			status: "sandbox 0 ready; a#0 exited; b#0 running",
			want:   "",
		},
		{
			name:   "all are through",
			pod:    "Always; init a; init b; main m; main n",
			status: "sandbox 0 ready; a#0 exited; b#0 exited",
			want:   "start m#0; start n#0",
		},
		{
			name:   "earlier ones were removed",
			pod:    "Always; init a; init b; init c; main m",
			status: "sandbox 0 ready; b#0 exited",
			want:   "start c#0",
		},
		{
			name:   "failed under Always",
			pod:    "Always; init a; main m",
			status: "sandbox 0 ready; a#0 exited code=1",
			want:   "start a#1",
		},
		{
			name:   "failed under OnFailure",
			pod:    "OnFailure; init a; main m",
			status: "sandbox 0 ready; a#0 exited code=1",
			want:   "start a#1",
		},
		{
			name:   "failed under Never",
			pod:    "Never; sidecar s; init a; main m; ephemeral e",
			status: "sandbox 0 ready; s#0 running; a#0 exited code=1",
			want:   "kill pod",
		},
		{
			name:   "failed under its own policy Never",
			pod:    "Always; init a policy=Never; main m",
			status: "sandbox 0 ready; a#0 exited code=1",
			want:   "kill pod",
		},
		{
			name:   "failed under its own policy OnFailure",
			pod:    "Never; init a policy=OnFailure; main m",
			status: "sandbox 0 ready; a#0 exited code=1",
			want:   "start a#1",
		},
		{
			name:   "failed with a code that has a rule",
			pod:    "Never; init a policy=Never rule=7; main m",
			status: "sandbox 0 ready; a#0 exited code=7",
			want:   "start a#1",
		},
		{
			name:   "failed first and then succeeded",
			pod:    "OnFailure; init a; main m",
			status: "sandbox 0 ready; a#1 exited; a#0 exited code=1",
			want:   "start m#0",
		},
		{
			name:   "out of memory is a failure whatever the code",
			pod:    "OnFailure; init a; main m",
			status: "sandbox 0 ready; a#0 exited code=0 oom",
			want:   "start a#1",
		},
		{
			name:   "created but never started",
			pod:    "Never; init a; main m",
			status: "sandbox 0 ready; a#0 created",
			want:   "start a#1",
		},
		{
			name:   "unknown",
			pod:    "OnFailure; init a; main m",
			status: "sandbox 0 ready; a#0 unknown",
			want:   "kill a#0 Unknown; start a#1",
		},
		{
			name:   "unknown under Never",
			pod:    "Never; init a; main m",
			status: "sandbox 0 ready; a#0 unknown",
			want:   "kill pod",
		},
		{
			name:   "changed while it runs",
			pod:    "Never; init a; init b; main m",
			status: "sandbox 0 ready; a#0 running image=old",
			want:   "",
		},
		{
			name:   "changed after it has succeeded and before anything else",
			pod:    "Always; init a; init b; main m",
			status: "sandbox 0 ready; a#0 exited image=old",
			want:   "start b#0",
		},
		{
			name:   "changed after it has failed under Never",
			pod:    "Never; init a; main m",
			status: "sandbox 0 ready; a#0 exited code=1 image=old",
			want:   "kill pod",
		},
		{
			name:   "changed before the frontier",
			pod:    "Always; init a; init b; main m",
			status: "sandbox 0 ready; a#0 exited image=old; b#0 running",
			want:   "",
		},
		{
			name:   "nothing is started in a deleted pod",
			pod:    "Always deleted; init a; main m; ephemeral e",
			status: "sandbox 0 ready",
			want:   "",
		},
	})
}

// Once a main container exists, initialisation is over.
func TestInitialised(t *testing.T) {
	runCases(t, []planCase{
		{
			name:   "main runs and init containers were removed",
			pod:    "Always; init a; main m; main n",
			status: "sandbox 0 ready; m#0 running",
			want:   "start n#0",
		},
		{
			name:   "main has exited and init containers were removed",
			pod:    "Always; init a; main m",
			status: "sandbox 0 ready; m#0 exited",
			want:   "start m#1",
		},
		{
			name:   "main could not be started",
			pod:    "Always; init a; main m",
			status: "sandbox 0 ready; m#0 created",
			want:   "start m#1",
		},
		{
			name:   "an init container that changed does not run again",
			pod:    "Always; init a; main m",
			status: "sandbox 0 ready; a#0 exited image=old; m#0 running",
			want:   "",
		},
		{
			name:   "nor one that has failed",
			pod:    "Never; init a; main m",
			status: "sandbox 0 ready; a#0 exited code=1; m#0 running",
			want:   "",
		},
	})
}

func TestSidecars(t *testing.T) {
	runCases(t, []planCase{
		{
			name:   "the next init container waits for the sidecar",
			pod:    "Always; sidecar s startup; init a; main m",
			status: "sandbox 0 ready; s#0 running",
			probes: "s#0 pending",
			want:   "",
		},
		{
			name:   "and goes on once it is started",
			pod:    "Always; sidecar s startup; init a; main m",
			status: "sandbox 0 ready; s#0 running",
			probes: "s#0 started",
			want:   "start a#0",
		},
		{
			name:   "without a startup probe it is started when it runs",
			pod:    "Always; sidecar s; init a; main m",
			status: "sandbox 0 ready; s#0 running",
			probes: "s#0 pending",
			want:   "start a#0",
		},
		{
			name:   "without probes at all too",
			pod:    "Always; sidecar s startup; init a; main m",
			status: "sandbox 0 ready; s#0 running",
			want:   "start a#0",
		},
		{
			name:   "main containers wait for the last sidecar",
			pod:    "Always; init a; sidecar s startup; main m",
			status: "sandbox 0 ready; a#0 exited; s#0 running",
			probes: "s#0 pending",
			want:   "",
		},
		{
			name:   "and start once it is started",
			pod:    "Always; init a; sidecar s startup; main m; main n",
			status: "sandbox 0 ready; a#0 exited; s#0 running",
			probes: "s#0 started",
			want:   "start m#0; start n#0",
		},
		{
			name:   "one that is down holds up the next",
			pod:    "Never; sidecar s; sidecar r; main m",
			status: "sandbox 0 ready; s#0 exited code=1",
			want:   "start s#1",
		},
		{
			name:   "one that comes down later does not",
			pod:    "Never; sidecar s; sidecar r; init a; main m",
			status: "sandbox 0 ready; s#0 exited code=1; r#0 running",
			want:   "start s#1; start a#0",
		},
		{
			name:   "kept running while main containers run",
			pod:    "Never; sidecar s; sidecar r; init a; main m",
			status: "sandbox 0 ready; s#0 exited; r#2 exited code=1; a#0 exited; m#0 running",
			want:   "start s#1; start r#3",
		},
		{
			name:   "brought back when it was removed",
			pod:    "Always; sidecar s; main m",
			status: "sandbox 0 ready; m#0 running",
			want:   "start s#0",
		},
		{
			name:   "a slow restart does not hold up main containers",
			pod:    "Always; sidecar s startup; main m; main n",
			status: "sandbox 0 ready; s#1 running; m#0 running; n#0 exited",
			probes: "s#1 pending",
			want:   "start n#1",
		},
		{
			name:   "failed liveness",
			pod:    "Never; sidecar s liveness; main m",
			status: "sandbox 0 ready; s#0 running; m#0 running",
			probes: "s#0 liveness",
			want:   "kill s#0 LivenessProbe; start s#1",
		},
		{
			name:   "failed startup",
			pod:    "Never; sidecar s startup; main m",
			status: "sandbox 0 ready; s#0 running",
			probes: "s#0 startup",
			want:   "kill s#0 StartupProbe; start s#1",
		},
		{
			name:   "changed",
			pod:    "Never; sidecar s; sidecar r; main m",
			status: "sandbox 0 ready; s#0 running image=old; r#0 running; m#0 running",
			want:   "kill s#0 DefinitionChanged; start s#1",
		},
		{
			name:   "changed before it has started",
			pod:    "Never; sidecar s startup; main m",
			status: "sandbox 0 ready; s#0 running image=old",
			probes: "s#0 pending",
			want:   "kill s#0 DefinitionChanged; start s#1",
		},
		{
			name:   "unknown",
			pod:    "Never; sidecar s; main m",
			status: "sandbox 0 ready; s#0 unknown; m#0 running",
			want:   "kill s#0 Unknown; start s#1",
		},
		{
			name:   "created but never started",
			pod:    "Never; sidecar s; main m",
			status: "sandbox 0 ready; s#0 created; m#0 running",
			want:   "start s#1",
		},
		{
			name:   "do not keep a pod alive",
			pod:    "Never; sidecar s; main m",
			status: "sandbox 0 ready; s#0 running; m#0 exited",
			want:   "kill pod",
		},
		{
			name:   "not restarted when the main containers are done",
			pod:    "OnFailure; sidecar s; main m",
			status: "sandbox 0 ready; s#0 exited code=1; m#0 exited",
			want:   "kill pod",
		},
		{
			name:   "restarted while a main container is to be",
			pod:    "OnFailure; sidecar s; main m",
			status: "sandbox 0 ready; s#0 exited code=1; m#0 exited code=1",
			want:   "start s#1; start m#1",
		},
	})
}
