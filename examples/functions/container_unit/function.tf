locals {
  # Usually gpu_share.chat, as it is.
  share = { name = "chat", cdi_device = "gpufleet.com/share=chat" }
  chat = provider::gpu::container_unit(local.share, {
    image   = "docker.io/vllm/vllm-openai:v0.11.0"
    command = ["--model", "/models/chat"]
    volumes = ["/srv/models:/models:ro"]
    ports   = ["127.0.0.1:8000:8000"]
    restart = "always"
  })
}

output "quadlet" {
  value = local.chat.quadlet
}

output "compose" {
  value = local.chat.compose
}

output "docker_run" {
  value = local.chat.docker_run
}
