// Package bounds has the largest sizes of a pod that an agent runs, far above those of real pods.
// They bound what one pod costs all others.
package bounds

const (
	// MaxContainers is the maximum number of containers of a pod. What is computed for a pod may
	// take the square of it: with 100,000 containers, minutes for each status.
	MaxContainers = 1000
	// MaxReferences is the maximum number of secrets and config maps that a pod refers to. Each of them
	// has a watch, which takes about 50 kB.
	MaxReferences = 1000
)
