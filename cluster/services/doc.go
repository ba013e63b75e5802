// Package services has the environment variables with the addresses of the services of a
// cluster, such as KUBERNETES_SERVICE_HOST.
//
// # Vocabulary
//
//   - A service counts if it has a cluster IP. Headless services have none.
//   - The variables of a service are its host and ports (REDIS_SERVICE_HOST,
//     REDIS_SERVICE_PORT, REDIS_SERVICE_PORT_<name of a port>) and Docker's links
//     (REDIS_PORT, REDIS_PORT_6379_TCP, …_PROTO, …_PORT, …_ADDR). [Variables] returns them.
//   - A pod has the variables of the services of its namespace, unless its spec has
//     enableServiceLinks: false. It always has the variables of the service default/kubernetes.
//
// # Use
//
//	s, err := services.New(client, services.Options{Checkpoint: store, Sync: sync})
//	opts.ServiceEnv = s.Env
//	err = agent.Add("services", s.Run)
//
// # Guarantees
//
//   - Nothing is requested before the first pod needs the variables.
//   - While the services are not known, a container of a pod of the API server waits: Env waits a
//     second at most, and then fails with [ErrNotRead], which has kubelet's text. A static pod
//     does not wait. It gets the variables of the services that are known.
//   - When the services become known, Options.Sync is called for each pod that waits.
//   - With a checkpoint, the services of the last run of the agent are known at the start, until
//     the API server has answered.
//   - Variables are in the order of the names of their services.
//   - A container keeps the variables that it was created with.
package services
