// Package podvalidation sets the defaults of pods and validates them, for all packages below podconfig.
//
//   - [SetDefaults] and [Validate] are those of package manifest, for the pods of manifests.
//   - [Accept] is for every pod that enters an agent, and for every pod of a checkpoint. What it returns, it
//     accepts again, also after the pod was written as JSON and read.
package podvalidation
