// Package events writes the events of an agent to an API server, as kubelet does.
//
// # Vocabulary
//
//   - An event is a [runtime.Event]: a reason and a message about a pod, a container of it,
//     or the node.
//   - An Event object is a *v1.Event, which kubectl describe shows.
//   - Correlation turns events into Event objects. Equal events share one object, which has
//     their number. From the tenth in 10 minutes on, events that differ only in their message
//     share one object. For each of the two types of events, a pod has 25 writes at once and
//     then one in 5 minutes. Correlation is client-go's record.EventCorrelator with kubelet's
//     settings.
//
// # Use
//
// Pass [Recorder.Event] to the agent as Options.EveryEvent, and run [Recorder.Run] with the
// agent. The Recorder counts repeats itself, so it must not receive merged events
// (Options.Event).
//
// # References
//
// The object of an event is the pod, with its UID, its resource version if [Options].Pod
// knows it, and the path of the container (spec.containers{web}). An event of a static pod has
// the UID of the static pod. The mirror pod has that UID in its annotation
// kubernetes.io/config.mirror, and kubectl describe follows this annotation. The object of an
// event about the node is the node, with its UID if [Options].NodeUID knows it. Otherwise the UID is
// the name of the node, so these events can be written before the node is registered, and kubectl describe finds
// them. They are in the namespace default.
//
// # Guarantees
//
//   - Event does not block. While 1000 events wait, further ones are dropped and counted,
//     see [Recorder.Dropped].
//   - The time in an Event object is that of the call of Event.
//   - If the API server cannot be reached, events wait for an hour, as long as an API server
//     keeps them. If it answers with an error that may pass (401, 408, 429, 5xx), an event is
//     tried 12 times; kubelet drops it. Any other answer drops the event.
//   - Events are written one after the other, in the order of the calls of Event.
//   - Events that wait when the context of Run ends are lost.
package events
