package plan_test

import "testing"

func TestSandbox(t *testing.T) {
	runCases(t, []planCase{
		{
			name: "nothing there",
			pod:  "Always; main m; main n",
			want: "sandbox 0; start m#0; start n#0",
		},
		{
			name: "nothing there and init containers",
			pod:  "Always; init a; init b; main m",
			want: "sandbox 0; start a#0",
		},
		{
			name:   "all is well",
			pod:    "Always; main m",
			status: "sandbox 0 ready; m#0 running",
			want:   "",
		},
		{
			name:   "sandbox without containers",
			pod:    "Always; main m",
			status: "sandbox 3 ready",
			want:   "start m#0",
		},
		{
			name:   "sandbox died",
			pod:    "Always; main m",
			status: "sandbox 0 dead; m#0 exited code=137",
			want:   "kill pod; sandbox 1; start m#1",
		},
		{
			name:   "sandbox with the greatest number", // it is from the runtime
			pod:    "Always; main m",
			status: "sandbox 4294967295 dead; m#2147483647 exited",
			want:   "kill pod; sandbox 4294967295; start m#2147483647",
		},
		{
			name:   "sandbox died before anything was started",
			pod:    "Never; main m",
			status: "sandbox 0 dead",
			want:   "kill pod; sandbox 1; start m#0",
		},
		{
			name:   "newest sandbox died though an older one is ready",
			pod:    "Always; main m",
			status: "sandbox 1 dead; sandbox 0 ready; m#0 running",
			want:   "kill pod; sandbox 2; start m#1",
		},
		{
			name:   "two are ready",
			pod:    "Always; main m",
			status: "sandbox 1 ready; sandbox 0 ready; m#0 running",
			want:   "kill pod; sandbox 2; start m#1",
		},
		{
			name:   "an old one that is dead does not matter",
			pod:    "Always; main m",
			status: "sandbox 1 ready; sandbox 0 dead; m#1 running; m#0@0 exited",
			want:   "",
		},
		{
			name:   "no address",
			pod:    "Always; main m",
			status: "sandbox 0 ready no-ip; m#0 running",
			want:   "kill pod; sandbox 1; start m#1",
		},
		{
			name:   "an address that the runtime does not report",
			pod:    "Always; main m",
			status: "sandbox 0 ready unknown-ip; m#0 running",
			want:   "",
		},
		{
			name:   "no address is needed on the host's network",
			pod:    "Always host; main m",
			status: "sandbox 0 ready host; m#0 running",
			want:   "",
		},
		{
			name:   "from the pod's to the host's network",
			pod:    "Always host; main m",
			status: "sandbox 0 ready; m#0 running",
			want:   "kill pod; sandbox 1; start m#1",
		},
		{
			name:   "from the host's network to the pod's",
			pod:    "Always; main m",
			status: "sandbox 0 ready host; m#0 running",
			want:   "kill pod; sandbox 1; start m#1",
		},
		{
			name:   "a new sandbox is initialised again",
			pod:    "Always; init a; main m",
			status: "sandbox 0 dead; a#0 exited; m#0 exited code=137",
			want:   "kill pod; sandbox 1; start a#1",
		},
		{
			name:   "init containers of another sandbox do not count",
			pod:    "Always; init a; main m",
			status: "sandbox 1 ready; sandbox 0 dead; a#0@0 exited; m#0@0 exited code=137",
			want:   "start a#1",
		},
		{
			name:   "main containers of another sandbox do not make a pod initialised",
			pod:    "Always; init a; init b; main m",
			status: "sandbox 1 ready; sandbox 0 dead; a#1 exited; b#0@0 exited; a#0@0 exited; m#0@0 exited",
			want:   "start b#1",
		},
	})
}

// A pod that has done its work is not given another sandbox.
func TestSandboxOfFinishedPod(t *testing.T) {
	runCases(t, []planCase{
		{
			name:   "all succeeded under OnFailure",
			pod:    "OnFailure; main m; main n",
			status: "sandbox 0 dead; m#0 exited; n#0 exited",
			want:   "kill pod",
		},
		{
			name:   "one failed under OnFailure",
			pod:    "OnFailure; main m; main n",
			status: "sandbox 0 dead; m#0 exited; n#0 exited code=1",
			want:   "kill pod; sandbox 1; start n#1",
		},
		{
			name:   "failed under Never",
			pod:    "Never; main m",
			status: "sandbox 0 dead; m#0 exited code=1",
			want:   "kill pod",
		},
		{
			name:   "sandbox lost under a running container under Never",
			pod:    "Never; main m",
			status: "sandbox 0 dead; m#0 running",
			want:   "kill pod",
		},
		{
			name:   "all done and the sandbox removed",
			pod:    "Never; main m",
			status: "m#0@0 exited",
			want:   "kill pod",
		},
		{
			name:   "Never but one that has not run yet",
			pod:    "Never; main m; main n",
			status: "sandbox 0 dead; m#0 exited",
			want:   "kill pod; sandbox 1; start n#0",
		},
		{
			name:   "Never but one that could not be started",
			pod:    "Never; main m; main n",
			status: "sandbox 0 dead; m#0 exited; n#0 created",
			want:   "kill pod; sandbox 1; start n#1",
		},
		{
			name:   "Never but a container's own policy Always",
			pod:    "Never; main m; main n policy=Always",
			status: "sandbox 0 dead; m#0 exited; n#0 exited",
			want:   "kill pod; sandbox 1; start n#1",
		},
		{
			name:   "Always but a container's own policy Never",
			pod:    "Always; main m policy=Never; main n",
			status: "sandbox 0 dead; m#0 exited; n#0 exited",
			want:   "kill pod; sandbox 1; start n#1",
		},
		{
			name:   "Never but a rule for the exit code",
			pod:    "Never; main m policy=Never rule=42",
			status: "sandbox 0 dead; m#0 exited code=42",
			want:   "kill pod; sandbox 1; start m#1",
		},
		{
			name:   "init failed for good",
			pod:    "Never; init a; main m",
			status: "sandbox 0 dead; a#0 exited code=1",
			want:   "kill pod",
		},
		{
			name:   "sandbox lost under a running init container under Never",
			pod:    "Never; init a; main m",
			status: "sandbox 0 dead; a#0 running",
			want:   "kill pod",
		},
		{
			name:   "init succeeded under Never and main had no chance yet",
			pod:    "Never; init a; main m",
			status: "sandbox 0 dead; a#0 exited",
			want:   "kill pod; sandbox 1; start a#1",
		},
		{
			name:   "sidecars do not ask for a sandbox",
			pod:    "OnFailure; sidecar s; main m",
			status: "sandbox 0 dead; s#0 exited code=1; m#0 exited",
			want:   "kill pod",
		},
		{
			name:   "a deleted pod gets none",
			pod:    "Always deleted; main m",
			status: "sandbox 0 dead; m#0 exited",
			want:   "kill pod",
		},
	})
}
