// Package credentials has the credentials of an agent for an API server, and the serving
// certificate of the agent. Files, bootstrap and rotation are kubelet's.
//
//	c, err := credentials.Load("edge-7", credentials.Options{
//		Kubeconfig:          "/etc/kubernetes/kubelet.conf",
//		BootstrapKubeconfig: "/etc/kubernetes/bootstrap-kubelet.conf",
//		CertDir:             "/var/lib/kubelet/pki",
//		Rotate:              true,
//	})
//	...
//	config := cluster.Config{REST: c.Config(), …}
//	err = agent.Add("credentials", c.Run)
//
// # Kubeconfig
//
// A kubeconfig may have anything that kubectl accepts: certificates as files or inline, tokens,
// exec plugins. Files of certificates and tokens are read again when they change.
//
// # Bootstrap
//
// An agent that joins a cluster has a bootstrap kubeconfig, whose credentials may do no more
// than request a certificate. If the kubeconfig is missing, or has no valid certificate,
// [Client.Run] sends a certificate signing request for the user system:node:<name> of the
// group system:nodes, as soon as the API server answers. When the certificate is signed, it is
// stored in CertDir, and the kubeconfig is written: it refers to kubelet-client-current.pem.
// No caller waits for the certificate. Until it exists, calls have no credentials and fail.
//
// # Rotation
//
// With Rotate, a new certificate is requested after 70 to 90 % of the lifetime of the current
// one. Connections with the old certificate are closed. If the certificate has expired, for
// example because the agent did not run, the bootstrap kubeconfig is used again, also while
// the agent runs. A kubelet exits in that case.
//
// If the kubeconfig has a token or an exec plugin in place of a certificate, nothing is
// rotated: the file of the token changes, or the plugin returns new credentials.
//
// # Serving
//
// [LoadServing] returns the certificate of a server. It is from files of an administrator,
// or requested from the cluster for the addresses of the node (signer
// kubernetes.io/kubelet-serving), or self-signed. An administrator approves signing requests
// of serving certificates; until then handshakes fail with [ErrNoCertificate].
//
// # Files
//
// CertDir has kubelet's files: kubelet-client-current.pem is a link to the newest client
// certificate with its key, kubelet-server-current.pem to the newest serving certificate. All
// files with keys have mode 0600. Errors name the file that is wrong. No secret is logged.
package credentials
