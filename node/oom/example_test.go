package oom_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/oom"
	"github.com/kubeletkit/kubeletkit/node/oom/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func Example() {
	var log fake.Log // /dev/kmsg
	watcher, err := oom.New(oom.Options{Open: log.Open})
	if err != nil {
		fmt.Println(err)
		return
	}
	emitted := make(chan struct{}, 2) // an event and a record
	node := &nodefake.Node{Do: func(string) { emitted <- struct{}{} }}
	if err := watcher.Join(node); err != nil { // with Options.Join the agent does this, and runs the watcher
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = watcher.Run(ctx)
	}()

	// The agent calls this when a container runs.
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main"}}},
	}
	id := runtime.ContainerID{Type: "containerd", ID: "5f0c"}
	_ = watcher.Running(ctx, pod, &runtime.PodStatus{Containers: []runtime.ContainerStatus{
		{Container: runtime.Container{ID: id, Name: "main", State: runtime.ContainerRunning}},
	}})

	log.Add(
		"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=5f0c,mems_allowed=0,oom_memcg=/kubepods/podu1/5f0c,task_memcg=/kubepods/podu1/5f0c,task=java,pid=1234,uid=0",
		"Memory cgroup out of memory: Killed process 1234 (java) total-vm:4194304kB, anon-rss:1048576kB",
	)
	<-emitted
	e := node.Events()[0]
	fmt.Println(e.Pod.Name, e.FieldPath, e.Reason)
	fmt.Println(e.Message)
	cancel()
	<-done
	// Output:
	// web spec.containers{main} OOMKilling
	// The kernel killed process java (pid 1234) of container main: the memory limit of the container is reached
}
