// Package credentials has the credentials with which an agent talks to an API server, and the
// certificate with which it serves, as kubelet has them.
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
// Nothing waits for all that: until then, calls are made without credentials, and fail.
//
// # Rotation
//
// With Rotate, a new certificate is requested when 70 to 90 % of the life of the current one
// are over. Connections that were made with the old one are closed. If the agent was away so
// long that the certificate has expired, the bootstrap kubeconfig is used again, also while
// the agent runs; a kubelet exits for that.
//
// A client without a certificate in its kubeconfig, but a token or an exec plugin, is not
// rotated: the token's file and the plugin do that.
//
// # Serving
//
// [LoadServing] returns the certificate of a server: from files of an administrator, requested
// from the cluster with the signer kubernetes.io/kubelet-serving for the addresses of the node,
// or one that signs itself. Signing requests of serving certificates are approved by an
// administrator; until then handshakes fail with [ErrNoCertificate].
//
// # Files
//
// CertDir has kubelet's files: kubelet-client-current.pem is a link to the newest certificate
// with its key, kubelet-server-current.pem the same for serving. All files with keys have mode
// 0600. Errors name the file that is wrong. No secret is logged.
package credentials
