package hyperv

import "strings"

// The rights that the backend needs on a host, for who was denied access. Windows says
// that access was denied, not what would have granted it.
const (
	hypervRight = "the agent's account must be a member of the host's group Hyper-V Administrators or Administrators"
	deviceRight = "the agent's account must be a member of the host's group Administrators, who alone may enable, disable and dismount " +
		"devices"
	readRight = "the agent's account needs the WMI rights Enable Account and Execute Methods on the namespace (wmimgmt.msc, Properties, " +
		"Security)"
	clusterRight = "the agent's account needs to be let into the cluster: Grant-ClusterAccess -User <account> -ReadOnly to read, -Full to " +
		"change it"
	dcomRight = "the agent's account needs Local Launch and Local Activation for Windows Management Instrumentation (dcomcnfg), or must " +
		"be a member of Administrators"
	policyRight = "the agent's account needs to read HKEY_LOCAL_MACHINE on the host"
)

// rightFor is the right that is missing when access to a namespace is denied.
func rightFor(code Code, namespace string, calling bool) string {
	switch {
	case code == DCOMDenied:
		return dcomRight
	case strings.EqualFold(namespace, Virtualization):
		return hypervRight
	case strings.EqualFold(namespace, MSCluster):
		return clusterRight
	case strings.EqualFold(namespace, CIMv2) && calling:
		return deviceRight
	default:
		return readRight
	}
}
