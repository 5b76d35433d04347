import {
  to = gpu_share.ocr
  identity = {
    host = "infer01"
    name = "vision-ocr"
  }
}
