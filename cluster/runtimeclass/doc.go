// Package runtimeclass finds the runtime handler of a runtime class of a cluster.
//
// # Vocabulary
//
//   - A runtime class is an object of the API group node.k8s.io. A pod names one in
//     runtimeClassName.
//   - A handler is the name of a configuration of the container runtime, such as "kata".
//   - The overhead of a runtime class is in the spec of the pod: the API server copies it
//     (admission plugin RuntimeClass). This package ignores it.
//
// # Use
//
//	classes, err := runtimeclass.New(client, runtimeclass.Options{Checkpoint: store})
//	rt, err := cri.Dial(…, cri.Options{RuntimeHandler: classes.Handler})
//	err = agent.Add("runtime classes", classes.Run)
//
// # Guarantees
//
//   - Nothing is requested before the first pod has a runtime class.
//   - A class that does not exist is a NotFound error, as in kubelet; the pod has the event
//     FailedCreatePodSandBox and waits. When the class appears, Options.Appeared is called.
//   - While the API server has not answered, Handler waits a second at most and then fails
//     with [ErrNotRead]. With a checkpoint, the classes of the last run of the agent are known
//     until the API server answers.
package runtimeclass
