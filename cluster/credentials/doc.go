// Package credentials has the credentials with which an agent talks to an API server: those of
// a kubeconfig.
//
//	c, err := credentials.Load("edge-7", credentials.Options{Kubeconfig: "/etc/kubernetes/kubelet.conf"})
//	...
//	config := cluster.Config{REST: c.Config(), …}
//	err = agent.Add("credentials", c.Run)
//
// A kubeconfig may have anything that kubectl accepts: certificates as files or inline, tokens,
// exec plugins. Files of certificates and tokens are read again when they change.
package credentials
