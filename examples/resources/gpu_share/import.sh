# The host that the share is on, and its name.
terraform import gpu_share.ocr infer01/vision-ocr
