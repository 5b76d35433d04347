# Runs libvirtd in the mount and process namespaces that it is started in, again whenever it ends. Each line of
# standard input is a signal for it; with the input all of it ends.
set -eu
mount --make-rprivate /
mount -t proc proc /proc
for dir in /run /var/lib /var/log /var/cache /etc/libvirt; do mount -t tmpfs tmpfs "$dir"; done
mkdir -p /run/libvirt /var/lib/libvirt /var/log/libvirt/qemu /var/cache/libvirt
# It looks for this user whatever its configuration says.
if ! getent passwd libvirt-qemu >/dev/null; then
  { cat /etc/passwd; echo 'libvirt-qemu:x:64055:64055::/var/lib/libvirt:/usr/sbin/nologin'; } >/run/passwd
  mount --bind /run/passwd /etc/passwd
  { cat /etc/group; echo 'libvirt-qemu:x:64055:'; getent group kvm >/dev/null || echo 'kvm:x:64056:'; } >/run/group
  mount --bind /run/group /etc/group
fi
printf '%s\n' 'auth_unix_rw = "none"' 'auth_unix_ro = "none"' >/etc/libvirt/libvirtd.conf
printf '%s\n' 'user = "root"' 'group = "root"' 'security_driver = "none"' 'stdio_handler = "file"' 'cgroup_controllers = [ ]' \
  'namespaces = [ ]' >/etc/libvirt/qemu.conf
while :; do
  libvirtd --pid-file /run/libvirtd.pid || true
done </dev/null &
while read -r signal; do
  kill -s "$signal" "$(cat /run/libvirtd.pid)"
done
